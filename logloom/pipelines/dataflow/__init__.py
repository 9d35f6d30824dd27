"""The script of Dataflow's flex template."""
