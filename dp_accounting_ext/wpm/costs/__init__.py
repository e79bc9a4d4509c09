"""What a unit of mass costs to move: powers of distances, row by row."""
