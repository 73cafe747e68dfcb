"""S3 as the truth: list versions, read the bytes of one version."""
