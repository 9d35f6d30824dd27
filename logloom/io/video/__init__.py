"""Compressed video in logs: packets, where decoding starts, and pictures.

Here, a module each: reading bits (bits), parsing packets of a codec (h264, h265, av1, vp9),
all codecs (codecs), the index of a topic's packets (index), a look at its beginning (glimpse), decoding
(frames), and opening encoders (encoders). No Beam.
Elsewhere: columns of video (logloom.transforms.rows.video_columns), single images
(logloom.io.logs.messages.images).

A *packet* is one message. By the conventions of foxglove.CompressedVideo and ffmpeg_image_transport it
contains one picture: an access unit in Annex B (H.264, H.265), a temporal unit in low-overhead OBUs (AV1), a
frame or superframe (VP9).
"""
