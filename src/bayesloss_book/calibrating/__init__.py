"""What the pages on Lacoste-Julien, Huszár and Ghahramani (2011) call."""
