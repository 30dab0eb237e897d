"""What results mean: functions over boards, predictions and states."""
