#!/bin/sh
# Give a client a password at mosquitto.
#
#     add_client.sh NAME PASSWORDS
#
# PASSWORDS is mosquitto's password file. The password itself goes into NAME.password, for the
# client. It is never an argument, which everybody on the machine could see.
set -euC
umask 077
name=$1 passwords=$2
if [ -e "$passwords" ] && cut -d: -f1 "$passwords" | grep -qxF -e "$name"; then
    echo "$name has a password in $passwords" >&2
    exit 2
fi
head -c 24 /dev/urandom | base64 | tr +/ -_ > "$name.password"
printf '%s:%s\n' "$name" "$(cat "$name.password")" > "$passwords.$name"
mosquitto_passwd -U "$passwords.$name"
cat "$passwords.$name" >> "$passwords"
rm "$passwords.$name"
