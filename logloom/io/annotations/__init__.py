"""Annotation files of OpenMMLab 2.0, read and written, with the files they name beside."""
