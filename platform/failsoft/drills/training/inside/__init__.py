"""What runs inside the drilled processes: counts where the script is, and breaks what is planned there."""
