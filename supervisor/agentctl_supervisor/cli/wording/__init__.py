"""What commands say to people."""
