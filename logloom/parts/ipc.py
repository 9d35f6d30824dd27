"""The part `ipc`: registers Arrow IPC files, and Hugging Face's folders of them."""

from logloom.parts import Part

PART = Part(folders={"ipc": "logloom.io.formats.ipc.kind:KIND"})
