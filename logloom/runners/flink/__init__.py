"""Apache Flink: fetching it (jars), a job server (server), a standing cluster's REST interface (rest), jobs
on it (engine)."""
