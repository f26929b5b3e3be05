"""As many names of one file as there may be: slow."""
from suite import add

add('many', 7)
