"""How annotations are checked at run time, where the tests ask for it."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float, says PEP 484
