"""Both sides of an attack: what is attacked, the caller that is, and the program that attacks."""
