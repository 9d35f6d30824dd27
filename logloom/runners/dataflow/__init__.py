"""Google Cloud Dataflow."""
