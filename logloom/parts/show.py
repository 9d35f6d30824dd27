"""The part `show`: registers the command `show`, a viewer of rows and logs."""

from logloom.parts import Part, Verb

PART = Part(
    verbs={
        "show": Verb(
            "logloom.cli.show", "Look", "Show rows of a log in Rerun, or in Foxglove by way of a file."
        )
    }
)
