"""What helps an author before there is a bundle: new projects."""
