"""Constants of the step-time model: fitted to public and to the user's own measurements, and checked on points left out."""
