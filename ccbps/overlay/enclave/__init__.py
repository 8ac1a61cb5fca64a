"""A simulated enclave, its attestation and its sessions."""
