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
    tell(*lines)
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
os.environ["FLEETPLAN_JOB"] = str(Path(workflow.basedir) / "workflow/job")


NAMED = str(config.get("scenario", "")).replace(",", " ").split()


def read_specs():
    """(scenarios, fleets): file and spec of each by name. All faults of all files at once refuse the plan; where some scenarios are
    named, those of their own files do, and a faulty file besides is left out with a warning.
    """
    from fleetplan.spec.fleet import SharedFleet
    from fleetplan.spec.several import read_all

    files = [
        str(path)
        for folder in ("data/scenarios", "data/fleets")
        for path in sorted(Path(folder).glob("*.yaml"))
    ]
    found = read_all(files)
    faults = [
        line
        for each in found
        for line in (*each.faults, *misplaced(each))
        if not NAMED or each.name in NAMED
    ]
    if faults:
        refuse(*dict.fromkeys(faults))
    left_out = [each for each in found if each.faults or misplaced(each)]
    for each in left_out:
        tell(*each.faults, *misplaced(each), f"{each.path}: left out of this plan")
    specs, fleets = {}, {}
    for each in found:
        if each not in left_out:
            kind = fleets if isinstance(each.spec, SharedFleet) else specs
            kind[each.name] = (each.path, each.spec)
    if not specs and not fleets and not NAMED:
        refuse("data/scenarios: holds no spec (*.yaml); write one, README.md shows how")
    unknown = [
        (
            f"{name} is a fleet: `make plan` without SCENARIO plans it"
            if name in fleets
            else unknown_name("scenario", name, specs)
        )
        for name in NAMED
        if name not in specs
    ]
    if unknown:
        refuse(*unknown)
    return specs, fleets, sorted({each.name for each in found})


def misplaced(each):
    """What is wrong with a file where it lies: scenarios in data/scenarios, fleets in data/fleets."""
    from fleetplan.spec.fleet import SharedFleet

    home = "fleets" if isinstance(each.spec, SharedFleet) else "scenarios"
    if each.spec is None or Path(each.path).parent.name == home:
        return ()
    return (f"{each.path}: holds a {home[:-1]}, which belongs into data/{home}",)


def hush():
    """Keep Snakemake's talk of its own doings from a plan's output (--quiet progress), which then is one line a job's beginning and end."""
    from snakemake.logging import logger
    from snakemake.settings.enums import Quietness

    chatter = (
        "Assuming unrestricted",
        "Building DAG",
        "Using shell",
        "Select jobs",
        "Execute ",
    )
    if Quietness.PROGRESS in (workflow.output_settings.quiet or ()):
        logger.addFilter(lambda record: not str(record.msg).startswith(chatter))


def tell(*lines):
    """Words for the person, not for a machine."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)


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


def job(verb, arguments, subject=""):
    """The shell command of a rule: a verb of the command line in its log, with a line at its beginning and at its end."""
    what = f"{verb} of {subject}" if subject else verb
    return f'bash "$FLEETPLAN_JOB" "{what}" {{log:q}} "$FLEETPLAN_PYTHON" -m fleetplan {verb} {arguments}'


def parts(*stages):
    """The parts that these stages fill, as patterns with their subject, scenario or fleet, as the only wildcard."""
    return [
        f"{PARTS}/{{{table.subject}}}/{table.stage}/{table.name}.parquet"
        for stage in stages
        for table in stage_tables(stage)
    ]


hush()
SPECS, FLEETS, KNOWN = read_specs()
CHOSEN = sorted(set(NAMED)) or sorted(SPECS)
# Where some scenarios are chosen, no fleet is planned: it would need the others.
FLEETS_CHOSEN = [] if NAMED else sorted(FLEETS)
# The parts of all that is planned.
PLANNED = [
    *(
        part.format(scenario=scenario)
        for scenario in CHOSEN
        for part in parts(*STAGES[:-1])
    ),
    *(
        part.format(fleet=fleet)
        for fleet in FLEETS_CHOSEN
        for part in parts(*OF_FLEETS)
    ),
]

for folder in sorted(Path(PARTS).glob("*/")):
    if folder.name not in KNOWN:
        tell(
            f"{folder}: no spec has this name any more, so the store leaves it out; delete the folder to forget it"
        )


wildcard_constraints:
    scenario="|".join(map(re.escape, SPECS)) or "(?!)",
    fleet="|".join(map(re.escape, FLEETS)) or "(?!)",
