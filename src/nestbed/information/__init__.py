"""What inputs tell, by the Gauss–Newton gain, and how inputs are moved to tell more."""
