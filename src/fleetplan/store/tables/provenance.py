"""Tables that `load` fills itself: where each part came from."""

from fleetplan.store.tables.dictionary import SCENARIO, Table, integer, text

PARTS = Table(
    "parts",
    "load",
    "One row a loaded part: what it was made from",
    (
        SCENARIO,
        text("stage", "stage whose verb wrote the part"),
        text("part", "name of the table that the part holds"),
        integer("rows", "rows of the part"),
        text("spec_digest", "digest of the validated meaning that the stage depends on", nullable=True),
        text("code_fingerprint", "fingerprint of the code that the stage imports", nullable=True),
        integer("seed", "seed of the stage's random numbers", nullable=True),
        text("sha256", "SHA-256 of the part's bytes"),
    ),
    ("scenario", "stage", "part"),
)

TABLES = (PARTS,)
