"""Steps from each schema to the next."""
