"""Public bug reports as inputs with the right outcome, run against the real stack: ``make scenarios``."""
