"""The store: all parts in one DuckDB file."""


# Known are all scenarios that have a spec: parts of any other are left out, and the log says so.
rule load:
    input:
        [
            part.format(scenario=scenario)
            for scenario in CHOSEN
            for part in parts(*STAGES[:-1])
        ],
        [
            part.format(fleet=fleet)
            for fleet in FLEETS_CHOSEN
            for part in parts(*OF_FLEETS)
        ],
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
        known=[word for name in sorted([*SPECS, *FLEETS]) for word in ("--known", name)],
        code=code_fingerprint("load"),
    shell:
        FLEETPLAN
        + " load {params.scenarios:q} {params.fleets:q} {params.known:q} --parts {PARTS:q} --store {output:q} > {log:q} 2>&1"
