"""Where the bytes of uploads and results are kept, under the digest of what they are."""
