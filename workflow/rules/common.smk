"""What all rules share: the specs, read and checked while the DAG is built, the paths, the digests, the run lock."""

import functools
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from fleetplan.errors import InputError, unknown_name
from fleetplan.store.meaning import code_fingerprint, fleet_digest, stage_digest
from fleetplan.store.runlock import take
from fleetplan.store.tables import EVIDENCE, OF_FLEETS, STAGES, stage_tables


def refuse(*lines):
    """End with these lines and nothing else: a user's mistake needs no traceback."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    sys.exit(2)


PARTS = "results/parts"
STORE = "results/fleet.duckdb"
REPORTS = "reports"
EVIDENCE_PARTS = [
    f"results/accuracy/public/{table.stage}/{table.name}.parquet"
    for table in stage_tables(EVIDENCE)
]
MANIFEST = REPORTS + "/{scenario}/manifest.json"

# Jobs call this interpreter by name, not by a console script, whose first line cannot hold a path with a space.
os.environ["FLEETPLAN_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(workflow.basedir) / "src"), os.environ.get("PYTHONPATH")])
)
FLEETPLAN = '"$FLEETPLAN_PYTHON" -m fleetplan'


def read_specs():
    """Every scenario of data/scenarios with its file, by name; all faults of all files at once."""
    from fleetplan.spec import check, load

    files = sorted(str(path) for path in Path("data/scenarios").glob("*.yaml"))
    if not files:
        refuse("data/scenarios: holds no spec (*.yaml); write one, README.md shows how")
    faults = [line for lines in check(files).values() for line in lines]
    if faults:
        refuse(*faults)
    scenarios = {file: load(file) for file in files}
    return {each.scenario: (file, each) for file, each in scenarios.items()}


def read_fleets():
    """Every fleet of data/fleets with its file, by name; all faults of all files at once."""
    from fleetplan.spec.fleet import load_fleet

    found, faults = {}, []
    for file in sorted(str(path) for path in Path("data/fleets").glob("*.yaml")):
        try:
            fleet = load_fleet(file)
        except InputError as error:
            faults += error.lines
            continue
        if fleet.fleet in SPECS or fleet.fleet in found:
            faults.append(
                f"{file}: fleet: is the name of another fleet or scenario too (got {fleet.fleet}), names must differ"
            )
        found[fleet.fleet] = (file, fleet)
    if faults:
        refuse(*faults)
    return found


def choose():
    """The scenarios that --config scenario=a,b names; all without it."""
    named = [name for name in str(config.get("scenario", "")).split(",") if name]
    faults = [
        unknown_name("scenario", name, SPECS) for name in named if name not in SPECS
    ]
    if faults:
        refuse(*faults)
    return named or sorted(SPECS)


@functools.cache
def begin():
    """Once, before Snakemake takes its own lock: the profile must be there, and this run alone in its folder."""
    if not workflow.dag_settings.force_incomplete:
        refuse(
            "The workflow needs its profile: run `make plan`, or snakemake with "
            "--workflow-profile workflow/profiles/default"
        )
    if workflow.is_main_process and not workflow.dryrun:
        try:
            take(Path(".snakemake"))
        except InputError as error:
            refuse(*error.lines)


def spec_of(wildcards):
    begin()
    return SPECS[wildcards.scenario][0]


def fleet_of(wildcards):
    begin()
    return FLEETS[wildcards.fleet][0]


def digest_of(stage):
    def digest(wildcards):
        try:
            return stage_digest(SPECS[wildcards.scenario][1], stage)
        except InputError as error:
            refuse(f"{SPECS[wildcards.scenario][0]}:", *error.lines)

    return digest


def parts(*stages):
    """The parts that these stages fill, as patterns with their subject, scenario or fleet, as the only wildcard."""
    return [
        f"{PARTS}/{{{table.subject}}}/{table.stage}/{table.name}.parquet"
        for stage in stages
        for table in stage_tables(stage)
    ]


SPECS = read_specs()
CHOSEN = choose()
FLEETS = read_fleets()
# Where some scenarios are chosen, no fleet is planned: it would need the others.
FLEETS_CHOSEN = [] if config.get("scenario") else sorted(FLEETS)


wildcard_constraints:
    scenario="|".join(map(re.escape, SPECS)),
    fleet="|".join(map(re.escape, FLEETS)) or "(?!)",
