"""Arrow IPC files of any origin, alone or as Hugging Face's `save_to_disk` writes them; read only."""
