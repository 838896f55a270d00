"""A run on disk: what it was given, what the model answered and how its rollouts ended; to be resumed and replayed.

Everything here is data that may be damaged or made by somebody else. A record is read into closed types, holds no
secret, and what is taken from it leads neither to code of the record being run outside of a worker nor to a variable of
the environment being read.
"""
