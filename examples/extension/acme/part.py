from logloom.parts import Part

PART = Part(
    logs={"telemetry": "acme.telemetry:KIND"},
    decoders={"acme": "acme.decoder:AcmeDecoder"},
    outputs={"npz": "acme.npz:FORMAT", "lines": "acme.lines:FORMAT"},
)
