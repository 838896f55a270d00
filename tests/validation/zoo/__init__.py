"""One tiny environment per defect. Each says in `finds` what is to be found of it, and nothing else may be."""
