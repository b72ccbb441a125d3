"""The names of all rules of `llmtune check`: what --ignore and the comment `llmtune: ignore[...]` may name."""

from __future__ import annotations

from functools import cache

from tuner.rules import RULES

_OF_FILES = """
    api-removed argument-stray broken-release cache-volume command-string compile-cache compose-version config-false
    config-nested config-null depends-on download-dir dtype-float32 duration-unit eager-mode empty engine-accepts
    engine-refuses engine-silent entrypoint-module entrypoint-repeated env-deprecated env-mig env-port env-removed
    env-unread flag-abbreviated flag-list-item flag-negation flag-removed flag-twice flag-unknown flag-value
    format-fp4 gpu-capabilities gpu-count gpu-count-missing gpu-count-twice gpu-ids-joined gpu-ids-number gpu-limit
    gpu-missing gpu-runtime gpu-shared grace-short health-missing helm-prefix-caching host-loopback image-floating
    image-old image-prerelease image-version install-at-start install-unpinned keda-metric-name keda-threshold
    keda-triggers key-twice kill-by-name libraries-borrowed log-file lora-rank memory memory-limit memory-part
    memory-share metric-name metric-type model-missing model-name model-positional name-invalid nothing-found
    open-without-key path-home port-mismatch port-name probe-delay probe-port probe-timeout quantity-invalid
    quantization-slow query-label query-many-series readiness-missing reference-missing remote-code resource-missing
    restart-group restart-loop restart-unknown rollout-surge scaler-bounds scaler-target scaler-twice scaling-signal
    secret-default secret-in-clear secret-in-file secret-place selector-mismatch service-name-vllm service-port
    service-selector set-twice shell-syntax shm-missing shm-unmounted speculative-tokens start-unwatched
    startup-budget startup-probe template token-missing token-unneeded trtllm-build trtllm-build-limits
    trtllm-chunked-prefill trtllm-engine trtllm-key trtllm-prompt-room trtllm-ranks trtllm-yaml unchecked
    unified-memory unit-path unit-section unit-shell unit-syntax unit-type unreadable variable-unset version-new
    version-old volume-once volume-undeclared yaml-type
"""


@cache
def rule_names() -> frozenset[str]:
    """Return every name that an issue can carry: rules about files, and those of validity with `-` for `_`."""
    validity = {rule.__name__.replace("_", "-") for rules in RULES.values() for rule in rules}
    return frozenset(_OF_FILES.split()) | validity
