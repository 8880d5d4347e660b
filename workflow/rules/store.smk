"""The store: all parts in one DuckDB file."""


# Known are all scenarios that have a spec: parts of any other are left out, and the log says so.
rule load:
    input:
        PLANNED,
        # Evidence is loaded once `snakemake validate_model` has made it; no plan waits for it.
        [part for part in EVIDENCE_PARTS if Path(part).exists()],
    output:
        STORE,
    log:
        "results/logs/load.log",
    benchmark:
        "results/benchmarks/load.tsv"
    params:
        scenarios=CHOSEN,
        fleets=FLEETS_CHOSEN,
        known=[word for name in KNOWN for word in ("--known", name)],
        code=code_fingerprint("load"),
    shell:
        job(
            "load",
            "{params.scenarios:q} {params.fleets:q} {params.known:q} --parts {PARTS:q} --store {output:q}",
        )
