"""Apache Flink as an engine.

Here: fetching it (jars), a standing cluster's REST interface (rest), Beam's job service (job_service), the
engine (engine).
"""
