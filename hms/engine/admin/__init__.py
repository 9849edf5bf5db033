"""What operators see of destinations and change."""
