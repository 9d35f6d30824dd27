"""The part `tables`: registers Parquet, Feather and CSV folders as a kind of log."""

from logloom.parts import Part

PART = Part(
    logs={"tables": "logloom.io.logs.tables.reader:KIND"},
    examiners={"tables": "logloom.pipelines.doctor.tables:findings"},
)
