"""The part `show`: registers the verb `show`, which shows rows and logs in viewers."""

from logloom.parts import Part, Verb

PART = Part(
    verbs={
        "show": Verb(
            "logloom.cli.show", "Look", "Show rows of a log in Rerun, or in Foxglove by way of a file."
        )
    }
)
