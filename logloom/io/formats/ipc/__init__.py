"""Arrow IPC files of any origin, and datasets of Hugging Face; read only.

Datasets of Hugging Face are those that `save_to_disk` of the package `datasets` writes.
"""
