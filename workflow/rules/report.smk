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
        FLEETPLAN
        + " report {wildcards.scenario:q} --store {input:q} --out {REPORTS:q} > {log:q} 2>&1"
