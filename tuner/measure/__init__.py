"""Arithmetic after a run: request records to estimates with intervals.

    requests.measure(run, slo=None) -> Measurement            table.METRICS: every metric with its formula
    server.with_server(measurement, run, workload, before, after, *, environment=None) -> Measurement
    quality.client_limits(run) -> list[str]                   reasons to think that the client was the bottleneck
    objective.score(measurement, objective) -> Estimate       objective.direction(objective) -> "maximize" | "minimize"
    objective.slo_violations(measurement, slo) -> {limit text: value/limit - 1}     above zero is a violation
    objective.meets(measurement, slo) -> bool
    compare.ratio_over_rounds(a, b) -> Estimate               compare.combine(measurements, objective) -> Estimate
    sequential.Hopeless(slo), sequential.UntilPrecise(half_width, cap_s, clock): .add(record), .reason() -> str | None
    warnings.advice(kind) -> str

Nothing here waits, reads or sends: the same records always give the same numbers.
"""
