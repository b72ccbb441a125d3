"""Effects on servers: prompts, arrivals and the streaming client that sends and times them.

    shapes.shapes(workload, seed, trace) -> list[Shape]                    pure: lengths, sharing, sessions
    prompts.build_requests(workload, *, vocab_size, seed, salt, as_text, scale, trace) -> list[Request]      pure
    dataset.read_prompts(path) -> list[Row]
    dataset.requests_from_rows(workload, rows, seed) -> list[Request]
    traces.read_trace(Trace) -> list[TracePoint]        Azure, BurstGPT and Mooncake
    arrivals.schedule(arrivals, requests, seed) -> Schedule                pure; arrivals.split deals it out to workers
    calibrate.calibrate(target) -> TextScale            how many tokens a word and a template are on this server
    run.run_load(url, model, requests, workload, *, api, api_key, dialect, ignore_eos, seed, on_progress, on_record,
                 stop, keep_on_interrupt, workers) -> LoadRun

Inside: `driver` sends on schedule over one event loop, `client` speaks HTTP and stamps reads, `sse` and `reply` read
what came, `workers`, `worker` and `frames` share a load among processes. The records of a run are defined in
`tuner.domain.load_record`.
"""
