"""Building EG-VQA: sources → records → curation → questions → two judges → people → audit → split → statistics."""
