"""The service over HTTP: who may ask for what, and what is answered. What is done lies below it."""
