"""The part `ipc`: registers Arrow IPC files, and the folders of them that Hugging Face's package saves."""

from logloom.parts import Part

PART = Part(folders={"ipc": "logloom.io.formats.ipc.kind:KIND"})
