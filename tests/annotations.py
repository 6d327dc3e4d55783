"""The run-time checker of annotations that the tests switch on: whole numbers pass as floats."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
