"""What tells of a node from outside: its state file, health, metrics, the words for systemd.

state_file   what the node says of its state, readable while it answers nobody
vitals       the thread that writes it, and feeds systemd's watchdog
watch        looks for conditions that become alerts
alert_topic  publishes begin and end of alerts; alert_command runs a command
latencies    how long messages waited and were held, from samples
health       live, ready, or why not
families     metrics as text
standby_figures  what a machine knows whose process stands by
rates        what changed between two looks
"""
