"""The part `messages`: registers the decoders of messages, by encoding."""

from logloom.parts import Part

PART = Part(
    decoders={
        "cdr": "logloom.io.logs.messages.ros.decoders:CdrDecoder",
        "ros1": "logloom.io.logs.messages.ros.decoders:Ros1Decoder",
        "protobuf": "logloom.io.logs.messages.protobuf:ProtobufDecoder",
        "json": "logloom.io.logs.messages.json:JsonDecoder",
    }
)
