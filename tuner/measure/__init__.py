"""Arithmetic after a run: request records to estimates with intervals.

requests.measure(run, slo=None) -> Measurement            requests.METRICS: the table of all metrics
objective.score(measurement, objective) -> Estimate       objective.direction(objective) -> "maximize" | "minimize"
objective.slo_violations(measurement, slo) -> {limit text: value/limit - 1}     above zero is a violation
objective.meets(measurement, slo) -> bool
compare.ratio_over_rounds(a, b) -> Estimate               compare.combine(measurements, objective) -> Estimate
warnings.advice(kind) -> str
"""
