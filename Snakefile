# The whole plan: every scenario from its spec to the store and the report. `make plan` runs it.
include: "workflow/rules/common.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/store.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        # Parts are wanted in themselves, else one that a stopped job took with it would not be missed.
        PLANNED,
        STORE,
        expand(MANIFEST, scenario=CHOSEN),
