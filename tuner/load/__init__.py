"""Effects on servers: prompts, arrivals and the streaming client that sends and times them.

    prompts.build_requests(workload, *, vocab_size, seed, salt, as_text=False) -> list[Request]     pure
    driver.run_load(url, model, requests, workload, *, api="completions", api_key=None, ignore_eos=True, seed=0,
                    on_progress=None, stop=None) -> LoadRun
    driver.Progress(total, done, failed, in_flight, output_tokens, elapsed_s)
    target.parse_target(url, model, *, api, api_key, ignore_eos, extra_body, verify_tls) -> Target

`stop` is a function without arguments, asked about ten times a second; the text that it returns ends the run and
becomes `LoadRun.stopped`. The records are defined in `tuner.domain.load_record`.
"""
