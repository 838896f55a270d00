"""The model gateway: what stands between a worker and the models, so that no credential has to."""
