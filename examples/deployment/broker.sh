#!/bin/sh
# Run the matching broker. The service and the image start this script, with
#
#     MQTT_URL                the MQTT server
#     METRICS_PORT            port of 127.0.0.1 for metrics
#     CREDENTIALS_DIRECTORY   folder with the matcher, the key, the password and the CA's certificate
#     STATE_DIRECTORY         folder of the broker's file
#     RUNTIME_DIRECTORY       folder of the pipe for the operator's lines: echo revoke alice > operator
set -eu
operator=$RUNTIME_DIRECTORY/operator
[ -p "$operator" ] || mkfifo -m 600 "$operator"
# A one-time matcher has no broker's key: leave --key out, here, in the service and in compose.yaml.
exec ccbps broker \
    --url "$MQTT_URL" \
    --password-file "$CREDENTIALS_DIRECTORY/broker.password" \
    --ca "$CREDENTIALS_DIRECTORY/ca.pem" \
    --matcher "$CREDENTIALS_DIRECTORY/quotes.matcher" \
    --key "$CREDENTIALS_DIRECTORY/broker.key" \
    --file "$STATE_DIRECTORY/broker.db" \
    --metrics "$METRICS_PORT" \
    --quota rate=200 --quota burst=400 --quota subscriptions=100 \
    <> "$operator"
