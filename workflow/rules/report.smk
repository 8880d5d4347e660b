"""The reports: a page is written once under the name of its version; the manifest names the newest."""


rule report:
    input:
        STORE,
    output:
        MANIFEST,
    log:
        "results/logs/{scenario}/report.log",
    benchmark:
        "results/benchmarks/{scenario}/report.tsv"
    params:
        code=code_fingerprint("report"),
    shell:
        job(
            "report",
            "{wildcards.scenario:q} --store {input:q} --out {REPORTS:q}",
            "{wildcards.scenario}",
        )


# Every public point predicted, with its error: `snakemake validate_model`; no plan hangs on it. `load` takes its parts where they are.
rule validate_model:
    output:
        EVIDENCE_PARTS,
        html=REPORTS + "/accuracy.html",
    log:
        "results/logs/validate_model.log",
    benchmark:
        "results/benchmarks/validate_model.tsv"
    params:
        code=code_fingerprint("validate-model"),
    shell:
        job("validate-model", "--html {output.html:q} --parts results/accuracy")
